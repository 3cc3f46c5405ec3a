//! Monotone curves utility(CPU), from goals and models.
