//! Prompt lookup: drafts what followed the same tokens earlier in prompt and answer.
