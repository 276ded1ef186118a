//! Runs generated programs: a child process with limits on processor time, memory, files and time, in a folder of its own,
//! without a network and as nobody where the machine allows that.
//!
//! Against accidents, not against malice: what the user may read, the program may read. Code of a model that is not
//! trusted belongs into a container or a virtual machine together with this program.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::error::CheckError;
use super::record::Outcome;

const SUPERVISOR: &str = include_str!("sandbox.py");
/// What the supervisor may need beyond the program's time.
const GRACE: Duration = Duration::from_secs(15);

/// What one program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub cpu_seconds: u32,
    pub wall_seconds: u32,
    pub memory_bytes: u64,
}

/// What of the guards this machine allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Guards {
    pub no_network: bool,
    /// Another user than the one who started this. Only root can give that.
    pub other_user: bool,
}

pub(super) struct Sandbox {
    python: String,
    limits: Limits,
    guards: Guards,
}

pub(super) struct Ran {
    pub outcome: Outcome,
    pub detail: String,
    pub ms: u64,
}

#[derive(Deserialize)]
struct Said {
    passed: bool,
    stopped: bool,
    code: i32,
    detail: String,
}

impl Sandbox {
    /// Tries the guards, the most first, on a program that does nothing.
    pub(super) async fn find(python: &str, limits: Limits) -> Result<Sandbox, CheckError> {
        let mut last = String::new();
        for (no_network, other_user) in [(true, true), (true, false), (false, true), (false, false)] {
            let guards = Guards { no_network, other_user };
            let sandbox = Sandbox { python: python.to_owned(), limits, guards };
            match sandbox.run("pass\n").await {
                Ok(Ran { outcome: Outcome::Passed, .. }) => return Ok(sandbox),
                Ok(ran) => last = ran.detail,
                Err(error) => last = error.to_string(),
            }
        }
        Err(CheckError::Sandbox(format!("{python} does not run a program within the limits: {}", last.trim())))
    }

    pub(super) fn guards(&self) -> Guards {
        self.guards
    }

    /// Did the program run to its end?
    pub(super) async fn run(&self, program: &str) -> Result<Ran, CheckError> {
        let failed = |error: std::io::Error| CheckError::Sandbox(format!("cannot run {}: {error}", self.python));
        let folder = tempfile::Builder::new().prefix("plateau-eval-").tempdir().map_err(failed)?;
        let (path, marker) = (folder.path().join("program.py"), folder.path().join("done"));
        let end = format!("\n\nopen({:?}, \"w\").close()\n", marker.display().to_string());
        std::fs::write(&path, format!("{program}{end}")).map_err(failed)?;
        let flag = |on: bool, name: &'static str| if on { name } else { "-" };
        let start = Instant::now();
        let child = Command::new(&self.python)
            .args(["-I", "-c", SUPERVISOR])
            .arg(&path)
            .arg(&marker)
            .arg(self.limits.cpu_seconds.to_string())
            .arg(self.limits.wall_seconds.to_string())
            .arg(self.limits.memory_bytes.to_string())
            .args([flag(self.guards.no_network, "net"), flag(self.guards.other_user, "user")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let limit = Duration::from_secs(self.limits.wall_seconds.into()) + GRACE;
        let ended = tokio::time::timeout(limit, child.wait_with_output()).await;
        let ms = start.elapsed().as_millis() as u64;
        let Ok(output) = ended else {
            return Err(CheckError::Sandbox("the program's supervisor did not end in time".to_owned()));
        };
        let output = output.map_err(failed)?;
        let said: Said = serde_json::from_slice(&output.stdout).map_err(|_| {
            let errors = String::from_utf8_lossy(&output.stderr);
            CheckError::Sandbox(format!(
                "the program's supervisor failed: {}",
                errors.lines().last().unwrap_or_default()
            ))
        })?;
        let outcome = match (said.passed, said.stopped) {
            (true, _) => Outcome::Passed,
            (false, true) => Outcome::Stopped,
            (false, false) => Outcome::Failed,
        };
        let detail = if said.passed { String::new() } else { format!("exit {}: {}", said.code, said.detail.trim()) };
        Ok(Ran { outcome, detail, ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cpu_seconds: 1, wall_seconds: 20, memory_bytes: 512 << 20 };

    async fn ran(program: &str) -> Ran {
        let sandbox = Sandbox::find("python3", LIMITS).await.unwrap();
        sandbox.run(program).await.unwrap()
    }

    #[tokio::test]
    async fn a_program_passes_only_when_it_runs_to_its_end() {
        assert_eq!(ran("assert 1 + 1 == 2").await.outcome, Outcome::Passed);
        for (program, error) in [
            ("assert 1 + 1 == 3", "AssertionError"),
            ("raise SystemExit(0)", "exit 0"),
            ("import os\nos._exit(0)", "exit 0"),
            ("def f(:", "SyntaxError"),
            ("x = bytearray(1 << 40)", "MemoryError"),
            ("open('large', 'wb').write(b'x' * (64 << 20))", ""),
        ] {
            let ran = ran(program).await;
            assert_eq!(ran.outcome, Outcome::Failed, "{program}: {}", ran.detail);
            assert!(ran.detail.contains(error), "{program}: {}", ran.detail);
        }
    }

    #[tokio::test]
    async fn a_program_without_end_is_stopped() {
        assert_eq!(ran("while True: pass").await.outcome, Outcome::Stopped);
        let short = Limits { wall_seconds: 1, ..LIMITS };
        let sandbox = Sandbox::find("python3", short).await.unwrap();
        assert_eq!(sandbox.run("import time\ntime.sleep(1000)").await.unwrap().outcome, Outcome::Stopped);
    }

    #[tokio::test]
    async fn the_network_is_cut_where_the_report_says_so() {
        let sandbox = Sandbox::find("python3", LIMITS).await.unwrap();
        let program = "import socket\nassert [n for _, n in socket.if_nameindex()] in ([], ['lo'])\n\
            s = socket.socket()\ns.settimeout(2)\nassert s.connect_ex(('192.0.2.1', 80)) == 101, 'reached'";
        let ran = sandbox.run(program).await.unwrap();
        assert!(!sandbox.guards().no_network || ran.outcome == Outcome::Passed, "{}", ran.detail);
    }

    #[tokio::test]
    async fn a_python_that_is_not_there_is_said() {
        let error = Sandbox::find("no-such-python", LIMITS).await.err().unwrap().to_string();
        assert!(error.contains("no-such-python does not run a program"), "{error}");
    }
}
