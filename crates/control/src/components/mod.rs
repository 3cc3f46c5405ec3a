//! Models of the components of a service (Stewart & Shen 2005): what a placement of them can carry, which placement carries most, and how
//! long a request takes. Services are planned offline.
//!
//! Symbols: a request costs component `c` the CPU time `a_c` wherever it runs; every replica of `c` uses `b_c` of CPU besides,
//! however little it has to do (Tables 1 and 2). The requests are spread evenly over the `R_c` replicas (round robin, 3.1). A
//! call from `c` to `d` costs `h_cd` more on the caller's server when no replica of `d` stands there (the RI model, 2.2). So a
//! server `s` of speed `w_s` that has the components `C_s` is full at the rate
//!
//! ```text
//! lambda_s = (w_s - sum_{c in C_s} b_c) / sum_{c in C_s} (a_c + sum_{remote d} h_cd) / R_c
//! ```
//!
//! and the service saturates at the lowest of these (3.1, step 3). Below that, each server is an M/G/1 queue (3.2).
//!
//! | file | what |
//! | --- | --- |
//! | `service` | profiles and servers; saturation and response time of a placement |
//! | `search` | placements by simulated annealing (5.1), by random sampling and by rules of thumb |

mod search;
mod service;

pub use search::{Searched, anneal, replicate_all, sample};
pub use service::{Call, Component, Placement, Server, Service};
