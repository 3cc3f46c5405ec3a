//! Which request goes next, and to which instance.
