//! Splits generated text at `<think>` and `</think>`.
