"""jinja2 set up as transformers sets it up for chat templates: the reference that the golden files hold."""

import datetime
import json

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# What strftime_now sees; tests/templates.rs renders at the same time.
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(Extension):
    """Accepts {% generation %} ... {% endgeneration %}; what is inside is printed as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("print_body"), [], [], body).set_lineno(line)

    def print_body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render_all(source, shapes):
    """Renders every shape; a rendering is {"text": ...}, {"raised": ...} (by the template) or {"error": ...}."""
    template = environment().from_string(source)
    results = {}
    for name, shape in shapes.items():
        names = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **shape}
        try:
            results[name] = {"text": template.render(**names)}
        except TemplateError as error:
            own = type(error) is TemplateError
            results[name] = {"raised" if own else "error": str(error)}
        except Exception as error:  # a fault of the template is a result here
            results[name] = {"error": f"{type(error).__name__}: {error}"}
    return results
