# Runs one Python program under limits and says how it ended, as one line of JSON on standard output.
# Arguments: program, marker, cpu seconds, wall seconds, memory bytes, "net" or "-", "user" or "-".
# The program is right when it ends well and has written the marker, which is its last act: exit(0) halfway is no pass.
import json
import os
import resource
import signal
import subprocess
import sys

program, marker, cpu, wall, memory, net, user = sys.argv[1:8]
cpu, wall, memory = int(cpu), float(wall), int(memory)
folder = os.path.dirname(program)


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if user == "user":
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


if user == "user":
    os.chown(folder, 65534, 65534)
command = [sys.executable, "-I", program]
if net == "net":
    # Its own network without a way out, and its own process tree, which ends with its first process.
    command = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", *command]
environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder, "TMPDIR": folder}
environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
errors = open(os.path.join(folder, "errors"), "w+b")
child = subprocess.Popen(
    command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
    # There are no threads here that the function could deadlock with.
    start_new_session=True, preexec_fn=limit,  # noqa: PLW1509
)
stopped = False
try:
    child.wait(timeout=wall)
except subprocess.TimeoutExpired:
    stopped = True
try:
    os.killpg(child.pid, signal.SIGKILL)
except ProcessLookupError:
    pass
code = child.wait()
errors.seek(0, os.SEEK_END)
errors.seek(max(0, errors.tell() - 600))
detail = errors.read().decode("utf-8", "replace")
# What ended the program is not said where it was the first process of its tree; the time that it used is.
used = resource.getrusage(resource.RUSAGE_CHILDREN)
stopped = stopped or used.ru_utime + used.ru_stime >= cpu
passed = code == 0 and os.path.exists(marker)
print(json.dumps({"passed": passed, "stopped": stopped, "code": code, "detail": detail}))
