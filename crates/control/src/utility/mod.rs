//! Monotone curves utility(CPU), from goals and models.
//!
//! Everything that competes for CPU is described to the placement by a [`Curve`]: applications through their flows
//! (Carrera 5.4.1), jobs through hypothetical utility (Carrera 5.4.2). Values are comparable across kinds: 0 is exactly at
//! the goal, 1 the best.

mod curve;

pub use curve::Curve;
