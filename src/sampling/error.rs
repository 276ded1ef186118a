//! Why a row gives no token.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("every token is masked or banned")]
    NothingLeft,
    #[error("the logits hold NaN at token {token}")]
    NotANumber { token: u32 },
}

impl SampleError {
    /// The parameters leave no token, whatever the model says: nothing is wrong with the model.
    pub fn is_ban_of_all(&self) -> bool {
        match self {
            SampleError::NothingLeft => true,
            SampleError::NotANumber { .. } => false,
        }
    }
}
