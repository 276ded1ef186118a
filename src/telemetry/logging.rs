//! Log lines on stderr.

use tracing_subscriber::EnvFilter;

/// Shape of the log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; coloured when `ansi` is set.
    Text { ansi: bool },
    /// One JSON object a line.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log filter `{filter}`: {source}; write it as in `info,plateau=debug`")]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
    #[error("logging was started twice")]
    AlreadyStarted,
}

/// Starts logging to stderr. Called once, by `main`.
pub fn start_logging(filter: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let parsed =
        EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text { ansi } => builder.with_ansi(ansi).try_init(),
        LogFormat::Json => builder.with_ansi(false).json().flatten_event(true).try_init(),
    };
    started.map_err(|_| TelemetryError::AlreadyStarted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_filter_is_named() {
        let error = start_logging("plateau=loud", LogFormat::Json).unwrap_err();
        assert!(error.to_string().contains("plateau=loud"), "{error}");
    }
}
