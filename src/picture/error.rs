//! A picture that cannot be taken: always the client's to mend, or the profile's to allow.

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Not a picture, not a whole one, or not of a kind that is taken.
    Invalid,
    /// Larger than a limit.
    TooLarge,
    /// It did not come: the address is not allowed, or nobody answers there.
    NotFetched,
}

/// `message` says what was found and what would be taken. It never holds what another machine or a file said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PictureError {
    pub fault: Fault,
    pub message: String,
}

impl PictureError {
    pub fn invalid(message: impl Into<String>) -> PictureError {
        PictureError { fault: Fault::Invalid, message: message.into() }
    }

    pub fn too_large(message: impl Into<String>) -> PictureError {
        PictureError { fault: Fault::TooLarge, message: message.into() }
    }

    pub fn not_fetched(message: impl Into<String>) -> PictureError {
        PictureError { fault: Fault::NotFetched, message: message.into() }
    }

    /// A file that is longer than `pictures.max_bytes`.
    pub fn too_long(limit: u64) -> PictureError {
        PictureError::too_large(format!(
            "the picture has more than {limit} bytes (`pictures.max_bytes`); send a smaller one"
        ))
    }
}
