//! A request that cannot be served as it stands: always the client's to mend, always naming the
//! field.

use crate::image::{Fault, ImageRefusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestErrorKind {
    /// Wrong type, range or combination.
    Invalid,
    /// A field or value of the API that this build does not serve; never silently ignored.
    Unsupported,
    /// Longer than a limit of the profile.
    TooLarge,
    /// An image, and the model or its template takes none.
    NoVision,
    /// Not an image, or not one that can be read.
    Image,
    /// An image that did not come from where it is said to be.
    NotFetched,
}

/// `param` is a path into the body, e.g. `messages[2].content[0].type`; `message` names the value
/// and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub kind: RequestErrorKind,
    pub param: Option<String>,
    pub message: String,
}

impl RequestError {
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError { kind: RequestErrorKind::Invalid, param: Some(param.into()), message: message.into() }
    }
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError { kind: RequestErrorKind::Unsupported, param: Some(param.into()), message: message.into() }
    }
    pub fn no_vision(param: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError { kind: RequestErrorKind::NoVision, param: Some(param.into()), message: message.into() }
    }
    /// An image that cannot be taken.
    pub fn image(param: impl Into<String>, error: &ImageRefusal) -> RequestError {
        let param = param.into();
        let kind = match error.fault {
            Fault::Invalid => RequestErrorKind::Image,
            Fault::TooLarge => RequestErrorKind::TooLarge,
            Fault::NotFetched => RequestErrorKind::NotFetched,
        };
        RequestError { kind, message: format!("`{param}`: {}", error.message), param: Some(param) }
    }
    pub fn too_large(param: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError { kind: RequestErrorKind::TooLarge, param: Some(param.into()), message: message.into() }
    }
}
