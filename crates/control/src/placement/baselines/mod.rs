//! The older algorithms, for comparison.
//!
//! | file | what |
//! | --- | --- |
//! | [`nested_loops`](mod@nested_loops) | the thesis, the demand-based rule of the older literature, and equal shares |
//! | [`autoscaler`] | how many instances an autoscaler in the manner of Kubernetes' would ask for |

pub mod autoscaler;
pub mod nested_loops;

pub use autoscaler::Autoscaler;
