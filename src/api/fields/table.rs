//! The rows.

use super::field::Scope::{Both, Chat, Completions};
use super::field::{Field, Scope, Verdict};

const fn consumed(
    name: &'static str,
    scope: Scope,
    default: &'static str,
    [sample, bad]: [&'static str; 2],
    doc: &'static str,
) -> Field {
    Field { name, scope, verdict: Verdict::Consumed { default, sample, bad }, doc }
}

const fn refused(
    name: &'static str,
    scope: Scope,
    neutral: &'static str,
    sample: &'static str,
    doc: &'static str,
) -> Field {
    Field { name, scope, verdict: Verdict::Refused { neutral, sample }, doc }
}

const fn passed(name: &'static str, scope: Scope, sample: &'static str, doc: &'static str) -> Field {
    Field { name, scope, verdict: Verdict::PassedOver { sample }, doc }
}

const ONE: &str = "Use `grammar`, `json_schema`, `regex` or `guided_choice`.";
const CHAT_ONLY: &str = "A raw prompt has no think block; use `/v1/chat/completions`.";
const LAZY: &str =
    "A grammar holds from the first token of the answer; calls of tools begin where the model begins them.";
const LOW_LEVEL: &str = "The server places sequences itself.";
const OPAQUE: &str = "A label for the provider's tracker; nothing here reads it.";
const NEVER_STORED: &str = "Nothing is stored, so there is nothing to store or to look up.";
const SAMPLER: &str = "This sampler is not in the chain.";

/// Every field, by subject.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &[
    // What goes in.
    consumed("model", Both, "the served model", [r#""another""#, "5"], "Any name is served by the one model; a name that is not its id is listed in `x-plateau-ignored`, and the answer's `model` is the served id."),
    consumed("messages", Chat, "required", [r#"[{"role":"user","content":"other"}]"#, r#""hi""#], "The conversation. `developer` is `system`; system messages after the first user message become user text in the profile's wrapper; text parts are joined; other parts are refused by their path. Parts of the types `image_url` and `input_image` are images (docs/vision.md)."),
    consumed("prompt", Completions, "required", [r#"["a","b"]"#, "[[]]"], "A string, a list of token ids, `{\"prompt_string\", \"multimodal_data\": [base64, ...]}` with `<__media__>` where each image goes (docs/vision.md), or a list of these; several prompts give `n` choices each. Texts of control tokens are those tokens."),
    consumed("echo", Completions, "false", ["true", r#""yes""#], "Put the prompt in front of the text. Not together with `logprobs`."),
    refused("suffix", Completions, r#"[""]"#, r#""end""#, "Fill-in-the-middle is not served."),
    consumed("add_generation_prompt", Chat, "true, unless `continue_final_message`", ["false", "1"], "Open an assistant turn at the end of the prompt."),
    consumed("continue_final_message", Chat, "false: a last assistant message is history, and a new turn follows it", ["true", "1"], "Go on with the last message, which must be the assistant's, where its text (or, without text, its reasoning) ends."),
    consumed("chat_template_kwargs", Chat, "{}", [r#"{"enable_thinking":false}"#, "[]"], "Variables for the template. The template's own names cannot be set, `chat_template` among them, nor can functions of Jinja such as `range`. A variable that the template does not mention is listed in `x-plateau-ignored`."),
    refused("chat_template", Both, "[]", r#""{{ messages }}""#, "Templates come from the model or the profile, never from a request."),
    refused("documents", Chat, "[[]]", r#"[{"text":"x"}]"#, "Put documents into messages."),
    refused("generation_prompt", Both, r#"[""]"#, r#""x""#, "Use `continue_final_message`."),
    refused("add_special_tokens", Both, "[true]", "false", "Prompts start with BOS where the model wants one."),
    refused("truncate_prompt_tokens", Both, "[]", "100", "A prompt is never cut; one that is too long is refused."),
    refused("mm_processor_kwargs", Both, "[{}]", r#"{"fps":1}"#, "How large images get is the profile's (`vision`), and the image's `detail`."),
    // Thinking.
    consumed("enable_thinking", Chat, "the profile's `chat.thinking`, else the template's", ["false", r#""no""#], "Think or not. Of several spellings that disagree the first of these holds: `chat_template_kwargs.enable_thinking`, `enable_thinking`, `thinking`, `reasoning.enabled`, `reasoning_effort`, `reasoning.effort`."),
    consumed("thinking", Chat, "as `enable_thinking`", [r#"{"type":"disabled"}"#, r#"{"type":"perhaps"}"#], "`{\"type\": \"enabled\" or \"adaptive\" or \"auto\" or \"disabled\", \"budget_tokens\": n, \"grammar\": name or GBNF}`, each of them optional, or a boolean. `grammar` is a shape for the thinking: a name of `plateau grammar list`, or GBNF, which needs a budget where it bounds no length."),
    consumed("reasoning_effort", Chat, "as `enable_thinking`", [r#""none""#, r#""some""#], "`none` is off; `minimal`, `low`, `medium`, `high`, `xhigh` and `max` are on. The word reaches templates that mention `reasoning_effort`; under others it sets the bound of the profile (`thinking.effort_*_tokens`) where the request has no other."),
    consumed("reasoning", Chat, "as `enable_thinking`", [r#"{"enabled":false}"#, r#"{"enabled":"no"}"#], "`{\"enabled\": bool, \"effort\": as reasoning_effort, \"max_tokens\": as thinking_budget}`."),
    refused("reasoning_format", Chat, r#"["auto","deepseek"]"#, r#""none""#, "Reasoning is always sent apart from content."),
    refused("include_reasoning", Chat, "[true]", "false", "Reasoning is always sent; leave it unread."),
    refused("separate_reasoning", Chat, "[true]", "false", "Reasoning is always sent apart from content."),
    consumed("thinking_budget", Chat, "the profile's `thinking.budget_tokens`", ["100", "-2"], "Most tokens of the thinking; -1: no bound. At the bound a closing text and the closing tag are written and the answer begins; 0 thinks not at all. Of several spellings the first of these holds: `thinking.budget_tokens`, `thinking_budget_tokens`, `thinking_budget`, `reasoning_budget_tokens`, `reasoning_budget`, `reasoning.max_tokens`. Where nothing is thought it is listed in `x-plateau-ignored`."),
    refused("thinking_budget", Completions, "[-1]", "100", CHAT_ONLY),
    consumed("thinking_budget_tokens", Chat, "`thinking_budget`", ["100", "-2"], "Another name."),
    refused("thinking_budget_tokens", Completions, "[-1]", "100", CHAT_ONLY),
    consumed("reasoning_budget", Chat, "`thinking_budget`", ["100", "-2"], "Another name."),
    refused("reasoning_budget", Completions, "[-1]", "100", CHAT_ONLY),
    consumed("reasoning_budget_tokens", Chat, "`thinking_budget`", ["100", "-2"], "Another name."),
    refused("reasoning_budget_tokens", Completions, "[-1]", "100", CHAT_ONLY),
    consumed("reasoning_budget_message", Chat, "the profile's `thinking.message`", [r#""stop""#, "1"], "What is written before thinking is closed at its bound."),
    refused("reasoning_budget_message", Completions, r#"[""]"#, r#""stop""#, CHAT_ONLY),
    refused("reasoning_control", Both, "[false]", "true", "Thinking is bounded by tokens and by grammars, not by commands."),
    // Tools.
    consumed("tools", Chat, "none", [r#"[{"type":"function","function":{"name":"f"}}]"#, r#"[{"type":"function"}]"#], "Functions that the model may call. Other types are refused. From the token that begins a call on, name and parameters are held to the declaration: strings are text that their `pattern`, `format`, length and `enum` hold for, other values follow their schema, also where `$ref`, `allOf`, `anyOf` or `oneOf` stand at its top; what cannot be enforced is listed in `x-plateau-widened`. `strict: false` frees the values, `strict: true` refuses a tool of which a part cannot be enforced."),
    consumed("tool_choice", Chat, "`auto`", [r#""none""#, r#""maybe""#], "`auto`; `none`: the model cannot begin a call; `required`: the answer is calls and nothing else; `{\"type\": \"function\", \"function\": {\"name\": ...}}`: one call of this function; `{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\", \"tools\"}}`: as the mode says, among these. Thinking comes first where it is on."),
    consumed("parallel_tool_calls", Chat, "true", ["false", r#""no""#], "`false`: the generation ends with its first call."),
    refused("functions", Chat, "[[]]", r#"[{"name":"f"}]"#, "It is the old form; send `tools`."),
    refused("function_call", Chat, r#"["auto","none"]"#, r#"{"name":"f"}"#, "It is the old form; send `tool_choice`."),
    refused("parse_tool_calls", Chat, "[true]", "false", "Send `tool_choice: \"none\"` to leave calls as text."),
    // How the answer comes.
    consumed("stream", Both, "false", ["true", r#""yes""#], "Server-sent events."),
    consumed("stream_options", Both, "{}", [r#"{"include_usage":true}"#, r#"{"include_usage":1}"#], "`include_usage`: a last chunk with `usage` and no choices. Other members, and the whole without `stream`, are listed in `x-plateau-ignored`."),
    consumed("return_progress", Both, "false", ["true", "1"], "Send `prompt_progress` chunks while the prompt is processed. Without `stream` it is listed in `x-plateau-ignored`."),
    consumed("n", Both, "1", ["2", "0"], "Choices; the seed of choice i is seed + i. At most `limits.n`."),
    refused("n_cmpl", Both, "[1]", "2", "Use `n`."),
    consumed("best_of", Completions, "`n`", ["1", "5"], "Only the value of `n` is served: choices are not ranked."),
    consumed("logprobs", Chat, "false", ["true", "1"], "Log-probabilities of the generated tokens, from the model's own distribution."),
    consumed("top_logprobs", Chat, "0", ["3", "21"], "Alternatives per token, 0 to 20; needs `logprobs: true`."),
    consumed("logprobs", Completions, "none", ["3", "21"], "Log-probabilities with so many alternatives per token, 0 to 20."),
    consumed("n_probs", Both, "0: none", ["3", "21"], "llama-server's name for the same; `logprobs` wins."),
    refused("post_sampling_probs", Both, "[false]", "true", "Log-probabilities are the model's own."),
    refused("prompt_logprobs", Both, "[0]", "1", "Prompts have no log-probabilities here."),
    refused("return_tokens", Both, "[false]", "true", "Token ids are not part of answers; use `/tokenize`."),
    refused("return_token_ids", Both, "[false]", "true", "Token ids are not part of answers; use `/tokenize`."),
    refused("return_tokens_as_token_ids", Both, "[false]", "true", "Tokens are shown as text and bytes."),
    consumed("special", Completions, "false", ["true", "1"], "Show the text of control tokens in the output."),
    consumed("skip_special_tokens", Completions, "true", ["false", "1"], "The opposite of `special`, under vLLM's name."),
    refused("skip_special_tokens", Chat, "[true]", "false", "Control tokens are never part of a message."),
    refused("include_stop_str_in_output", Both, "[false]", "true", "The text of a stop string is never sent."),
    refused("response_fields", Both, "[[]]", r#"["content"]"#, "Answers are whole."),
    passed("timings_per_token", Both, "true", "Timings come once, with the last chunk."),
    passed("verbose", Both, "true", "There is no verbose answer."),
    passed("sse_ping_interval", Both, "5", "The profile says how often (`server.ping_seconds`)."),
    passed("spaces_between_special_tokens", Both, "true", "Text is what the tokens say."),
    // How long.
    consumed("max_tokens", Both, "the profile's `generation.max_tokens`, else until the context is full", ["5", "0"], "At least 1, or -1 for no limit. More than fits is not an error."),
    consumed("max_completion_tokens", Both, "`max_tokens`", ["5", "0"], "The newer name; wins over `max_tokens`."),
    consumed("n_predict", Both, "`max_tokens`", ["5", "0"], "llama-server's name; the other two win over it."),
    consumed("stop", Both, "none", [r#""END""#, "[1]"], "A string or a list of them, at most `limits.stop_strings`. Their text is never sent. Empty ones match nothing."),
    consumed("ignore_eos", Both, "false", ["true", "1"], "Go on past the end-of-generation token."),
    refused("min_tokens", Both, "[0]", "5", "Use `ignore_eos` with `max_tokens`."),
    refused("stop_token_ids", Both, "[[]]", "[7]", "Use `stop`."),
    refused("t_max_predict_ms", Both, "[0,-1]", "100", "Close the connection instead: it cancels the request."),
    refused("n_indent", Both, "[0]", "4", "Use `stop`."),
    // Sampling.
    consumed("seed", Both, "random", ["7", r#""x""#], "Fixes the random draws. The text repeats when its batches do: a shared step or a cached prefix rounds logits differently. -1 is random."),
    consumed("temperature", Both, "the profile's", ["0.25", "99"], "0 to 10; 0 is greedy."),
    consumed("top_k", Both, "the profile's", ["7", "-2"], "0 or -1: off."),
    consumed("top_p", Both, "the profile's", ["0.5", "1.5"], "0 to 1; 1: off."),
    consumed("min_p", Both, "the profile's", ["0.25", "-0.1"], "0 to 1; 0: off."),
    consumed("typical_p", Both, "the profile's", ["0.5", "2"], "0 to 1; 1: off."),
    consumed("xtc_probability", Both, "0: off", ["0.5", "2"], "How often the most probable tokens above the threshold are dropped, 0 to 1."),
    consumed("xtc_threshold", Both, "0.1", ["0.25", "2"], "0 to 1."),
    consumed("dry_multiplier", Both, "0: off", ["0.5", "-1"], "DRY: penalty on continuing a repeated run, 0 to 100."),
    consumed("dry_base", Both, "1.75", ["2.5", "0.5"], "DRY: growth per token of the run, 1 to 100."),
    consumed("dry_allowed_length", Both, "2", ["5", "-1"], "DRY: runs up to this length are free."),
    consumed("dry_penalty_last_n", Both, "-1: all", ["99", "-2"], "DRY: how many of the last tokens are searched; 0: off."),
    consumed("dry_sequence_breakers", Both, "newline, colon, quote and star", [r#"["x"]"#, r#""x""#], "DRY: runs do not reach over a token that holds one of these texts. A text that no token of the model holds is refused (while DRY is on)."),
    consumed("repeat_penalty", Both, "the profile's", ["1.5", "0"], "0.01 to 10; 1: off."),
    consumed("repetition_penalty", Both, "`repeat_penalty`", ["1.5", "0"], "Another name; `repeat_penalty` wins."),
    consumed("repeat_last_n", Both, "the profile's", ["99", "-2"], "How many of the last tokens the three penalties look at; -1: all, 0: off."),
    consumed("presence_penalty", Both, "the profile's", ["0.5", "11"], "-10 to 10."),
    consumed("frequency_penalty", Both, "the profile's", ["0.5", "11"], "-10 to 10."),
    consumed("logit_bias", Both, "none", [r#"{"65":-100}"#, r#"{"x":1}"#], "`{\"id\": bias}` or `[[id or text, bias]]`, -100 to 100; `false` bans the token."),
    refused("samplers", Both, "[[]]", r#"["top_k"]"#, "The order of the chain is fixed."),
    refused("mirostat", Both, "[0]", "2", SAMPLER),
    passed("mirostat_tau", Both, "5", "Without mirostat it says nothing."),
    passed("mirostat_eta", Both, "0.1", "Without mirostat it says nothing."),
    refused("dynatemp_range", Both, "[0]", "0.5", SAMPLER),
    passed("dynatemp_exponent", Both, "1", "Without a dynamic temperature it says nothing."),
    refused("top_n_sigma", Both, "[-1,0]", "1.5", SAMPLER),
    refused("top_a", Both, "[0]", "0.5", SAMPLER),
    refused("tfs_z", Both, "[1]", "0.5", SAMPLER),
    refused("adaptive_target", Both, "[-1]", "0.5", SAMPLER),
    passed("adaptive_decay", Both, "0.9", "Without an adaptive target it says nothing."),
    refused("min_keep", Both, "[0,1]", "5", "One token is always kept, never more for its own sake."),
    refused("penalize_nl", Both, "[true]", "false", "Newlines are tokens like others; use `logit_bias`."),
    refused("length_penalty", Both, "[1]", "2", "There is no beam search."),
    refused("use_beam_search", Both, "[false]", "true", "There is no beam search."),
    refused("early_stopping", Both, "[false]", "true", "There is no beam search."),
    refused("bad_words", Both, "[[]]", r#"["x"]"#, "Use `logit_bias` with `false`."),
    refused("allowed_token_ids", Both, "[]", "[1]", ONE),
    refused("logits_processors", Both, "[[]]", r#"["x"]"#, "No code is taken from requests."),
    refused("backend_sampling", Both, "[false]", "true", "Sampling runs in the server."),
    // Constraints.
    consumed("response_format", Both, "text", [r#"{"type":"json_object"}"#, r#"{"type":"xml"}"#], "`{\"type\": \"json_object\"}`, `{\"type\": \"json_schema\", \"json_schema\": {\"schema\": ...}}` (or `schema` beside `type`), `{\"type\": \"grammar\", \"grammar\": ...}`, `{\"type\": \"regex\", \"regex\": ...}`. The answer follows it, thinking does not. What of a schema cannot be enforced is listed in `x-plateau-widened` (docs/grammars.md). Of all fields that constrain the answer one may be sent."),
    consumed("json_schema", Both, "none", [r#"{"type":"object"}"#, "[]"], "A schema that the answer follows; llama-server's name."),
    consumed("grammar", Both, "none", [r#""root ::= \"a\"""#, r#""root ::= (""#], "GBNF, or Lark where nothing is defined with `::=`."),
    refused("grammar_type", Both, r#"[""]"#, r#""gbnf""#, "The text of `grammar` says which it is."),
    refused("grammar_lazy", Both, "[false]", "true", LAZY),
    refused("grammar_triggers", Both, "[[]]", r#"[{"type":1}]"#, LAZY),
    refused("preserved_tokens", Both, "[[]]", r#"["x"]"#, LAZY),
    consumed("guided_json", Both, "none", [r#"{"type":"object"}"#, "5"], "A schema or its JSON text; vLLM's name."),
    consumed("guided_regex", Both, "none", [r#""a""#, r#""(""#], "A regular expression for the whole answer; vLLM's name."),
    consumed("guided_choice", Both, "none", [r#"["a"]"#, "[]"], "The answer is one of these texts."),
    consumed("guided_grammar", Both, "none", [r#""root ::= \"a\"""#, r#""root ::= (""#], "As `grammar`; vLLM's name."),
    passed("guided_decoding_backend", Both, r#""x""#, "There is one."),
    consumed("structured_outputs", Both, "none", [r#"{"json":{"type":"object"}}"#, r#"{"json":5}"#], "vLLM's object: one of `json`, `json_object`, `regex`, `choice`, `grammar`."),
    consumed("regex", Both, "none", [r#""a""#, r#""(""#], "A regular expression for the whole answer; SGLang's name."),
    consumed("ebnf", Both, "none", [r#""root ::= \"a\"""#, r#""root ::= (""#], "As `grammar`; SGLang's name."),
    consumed("constraint_scope", Both, "`answer`", [r#""whole""#, r#""half""#], "`answer`: a constraint holds from the end of the thinking on; `whole`: from the first generated token on. In raw completions both are the same."),
    // The server's own business.
    consumed("cache_prompt", Both, "true", ["false", "1"], "Reuse what earlier requests left of a common beginning, and leave it for later ones."),
    consumed("cache", Both, "as `cache_prompt`", [r#"{"write":false}"#, r#"{"write":1}"#], "`{\"read\": bool, \"write\": bool}`: begin from what earlier requests left; leave states for later ones (`false` for side requests that nobody goes on from). Other members are refused. See docs/prefix-cache.md."),
    refused("id_slot", Both, "[-1]", "0", LOW_LEVEL),
    refused("slot_id", Both, "[-1]", "0", LOW_LEVEL),
    refused("n_keep", Both, "[0,-1]", "5", "The context is never shifted."),
    refused("n_discard", Both, "[0]", "-1", "The context is never shifted."),
    refused("n_cache_reuse", Both, "[0]", "5", LOW_LEVEL),
    refused("cache_reuse", Both, "[0]", "5", LOW_LEVEL),
    refused("lora", Both, "[[]]", r#"[{"id":0,"scale":1}]"#, "There are no adapters."),
    consumed("speculative", Both, "the profile's", [r#"{"n_max":1,"lookup":false}"#, r#"{"n_max":9}"#], "Drafting: how fast the answer comes, never which one. `n_max`: most tokens that the MTP head drafts in a step, 0 (off) to the profile's `speculative.n_max`. `n_min`: shorter drafts are dropped. `p_min`: the head stops where its best token is less probable, 0 to 1. `lookup`: `false` drafts nothing from earlier text. `adaptive`: `false` always drafts the most instead of what pays (for measurements). Other members are listed in `x-plateau-ignored`. Without an MTP head `n_max` and `p_min` have nothing to act on; `/props` says what is in effect."),
    consumed("speculative.n_max", Both, "`speculative`", ["1", "9"], "llama-server's spelling; the member of `speculative` wins over it."),
    consumed("speculative.n_min", Both, "`speculative`", ["1", "9"], "As above."),
    consumed("speculative.p_min", Both, "`speculative`", ["0.5", "2"], "As above."),
    passed("prediction", Chat, r#"{"type":"content","content":"x"}"#, "A hint for speed; the answer is the same without it."),
    passed("priority", Both, "1", "Requests are served in the order of their arrival."),
    passed("request_id", Both, r#""x""#, "The server makes its own."),
    // OpenAI's account features.
    refused("store", Both, "[false]", "true", NEVER_STORED),
    refused("previous_response_id", Both, "[]", r#""x""#, NEVER_STORED),
    refused("audio", Chat, "[]", r#"{"voice":"x"}"#, "Text only."),
    refused("modalities", Chat, r#"[["text"]]"#, r#"["audio"]"#, "Text only."),
    refused("web_search_options", Chat, "[]", "{}", "The server does not search."),
    passed("user", Both, r#""x""#, OPAQUE),
    passed("metadata", Both, "{}", OPAQUE),
    passed("safety_identifier", Both, r#""x""#, OPAQUE),
    passed("service_tier", Both, r#""auto""#, "There is one tier."),
    passed("prompt_cache_key", Both, r#""x""#, "The cache finds common beginnings by itself."),
    passed("prompt_cache_retention", Both, r#""24h""#, "The cache keeps what fits."),
    passed("verbosity", Chat, r#""low""#, "The model has no such setting; ask for it in a message."),
];
