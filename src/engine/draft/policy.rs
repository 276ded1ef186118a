//! How many tokens to draft, and from where.
