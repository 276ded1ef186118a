//! What a constraint allows, as the chain takes it.

/// Tokens that a constraint allows, one bit a token, least significant bit first: the seam for
/// grammars. Tokens past its end are forbidden.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a>(pub &'a [u32]);

impl Mask<'_> {
    pub fn allows(&self, token: u32) -> bool {
        self.0.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}
