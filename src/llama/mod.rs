//! The only folder that names llama.cpp, and the only one with unsafe code.
