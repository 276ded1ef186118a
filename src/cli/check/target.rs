//! Which server a check is about: the arguments that all checks share.

use std::path::PathBuf;

use crate::app::Failure;
use crate::check::client::Client;

/// The server, the model and the key.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// Address of the server, with or without /v1
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8020")]
    pub url: String,
    /// Model to name in requests [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// File that holds the server's API key
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    api_key_file: Option<PathBuf>,
    /// The key itself, which others of this machine can read
    #[arg(long, value_name = "KEY", hide = true)]
    key: Option<String>,
}

impl Target {
    /// The text of the key.
    pub fn key(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.api_key_file else { return Ok(self.key.clone()) };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Failure::Unavailable(format!("cannot read {}: {error}", path.display())))?;
        Ok(Some(text.trim().to_owned()))
    }

    pub fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.url, self.key()?).map_err(|error| Failure::Usage(error.to_string()))
    }
}
