// A plug-in for tests/native_plugin.rs and tests/native_abort.rs: ggml's CPU backend under another name, as a device that takes a whole model like a
// card and counts, in its description, the graphs that it computed. It is linked without ggml-base, so every function of
// that comes from the executable that loads it. Compiled with PLATEAU_ABORT_FILE it aborts, as a card that fails does, once
// that file is there.

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <cstdio>
#include <unistd.h>

namespace {

ggml_backend_device device;
ggml_backend_i      upstream;
char                description[64] = "0 graphs";
int                 n_graphs        = 0;

ggml_backend_dev_t cpu_device() { return ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0); }

const char * reg_name(ggml_backend_reg_t) { return "HostCheck"; }

size_t device_count(ggml_backend_reg_t) { return 1; }

ggml_backend_dev_t device_get(ggml_backend_reg_t, size_t) { return &device; }

const char * device_name(ggml_backend_dev_t) { return "HOSTCHECK0"; }

const char * device_description(ggml_backend_dev_t) { return description; }

enum ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }

void device_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    ggml_backend_dev_get_props(cpu_device(), props);
    props->name        = device_name(dev);
    props->description = device_description(dev);
    props->type        = device_type(dev);
}

ggml_status count_and_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    snprintf(description, sizeof(description), "%d graphs", ++n_graphs);
#ifdef PLATEAU_ABORT_FILE
    if (access(PLATEAU_ABORT_FILE, F_OK) == 0) {
        GGML_ABORT("an injected fault of the device");
    }
#endif
    return upstream.graph_compute(backend, graph);
}

ggml_backend_t device_start(ggml_backend_dev_t dev, const char * params) {
    ggml_backend_t backend = ggml_backend_dev_init(cpu_device(), params);
    upstream                    = backend->iface;
    backend->iface.graph_compute = count_and_compute;
    backend->device             = dev;
    return backend;
}

} // namespace

extern "C" int ggml_backend_score(void) { return 1; }

extern "C" ggml_backend_reg_t ggml_backend_init(void) {
    // Linked with -Bsymbolic: this is the plug-in's own copy of the CPU backend, not the executable's.
    static ggml_backend_reg reg = *ggml_backend_cpu_reg();
    reg.iface.get_name         = reg_name;
    reg.iface.get_device_count = device_count;
    reg.iface.get_device       = device_get;

    device                       = *cpu_device();
    device.reg                   = &reg;
    device.iface.get_name        = device_name;
    device.iface.get_description = device_description;
    device.iface.get_type        = device_type;
    device.iface.get_props       = device_props;
    device.iface.init_backend    = device_start;
    return &reg;
}
