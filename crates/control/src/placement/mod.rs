//! Which instances run where, and in which state.
