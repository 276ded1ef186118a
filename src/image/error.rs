//! An image that cannot be taken: always the client's to mend, or the profile's to allow.

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Not an image, not a whole one, or not of a kind that is taken.
    Invalid,
    /// Larger than a limit.
    TooLarge,
    /// It did not come: the address is not allowed, or nobody answers there.
    NotFetched,
}

/// `message` says what was found and what would be taken. It never holds what another machine or a file said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ImageRefusal {
    pub fault: Fault,
    pub message: String,
}

impl ImageRefusal {
    pub fn invalid(message: impl Into<String>) -> ImageRefusal {
        ImageRefusal { fault: Fault::Invalid, message: message.into() }
    }

    pub fn too_large(message: impl Into<String>) -> ImageRefusal {
        ImageRefusal { fault: Fault::TooLarge, message: message.into() }
    }

    pub fn not_fetched(message: impl Into<String>) -> ImageRefusal {
        ImageRefusal { fault: Fault::NotFetched, message: message.into() }
    }

    /// A file that is longer than `images.max_bytes`.
    pub fn too_long(limit: u64) -> ImageRefusal {
        ImageRefusal::too_large(format!(
            "the image has more than {limit} bytes (`images.max_bytes`); send a smaller one"
        ))
    }
}
