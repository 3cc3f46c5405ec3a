//! The parts of the world, each with its state and what it can say and do by itself. None knows the world; those below know none above.
//!
//! | part | what it is |
//! | --- | --- |
//! | `event` | what happens, and when |
//! | `signal` | what a change in one part means for another |
//! | `processor` | a node's CPU, shared; a link is one too |
//! | `cores` | a machine's cores, shared by the nodes that are its slices |
//! | `node` | nodes and links |
//! | `tasks` | requests, starts and housekeeping as steps |
//! | `clients` | sessions and arrivals |
//! | `instance`, `job` | what runs, and what is being done to it |
//! | `wake` | a gateway's call for an instance |
//! | `app` | an application's place in the gateway: its `Admission` |
//! | `flow` | the requests of a load |
//! | `controller` | the loop, its mailbox, what it has stored |
//! | `decisions` | what the loop was told and decided, step by step |
//! | `measurements` | counters as the controller sees them |
//! | `faults` | the random numbers of faults |
//! | `recorder`, `oracle` | what is written down, and what was found |

pub mod absence;
pub mod app;
pub mod clients;
pub mod controller;
pub mod cores;
pub mod decisions;
pub mod event;
pub mod faults;
pub mod flow;
pub mod instance;
pub mod job;
pub mod measurements;
pub mod node;
pub mod oracle;
pub mod processor;
pub mod recorder;
pub mod signal;
pub mod tasks;
pub mod wake;
