//! All of weal's decisions, and nothing else: no sockets, no async, no clock, no entropy, no hash iteration.
//!
//! The gateway, the controller and the simulator run this very code; time and seed come in as arguments, so every run can
//! be replayed. A map of the folder, in the order in which a decision comes about:
//!
//! | module | turns | into | source |
//! | --- | --- | --- | --- |
//! | [`profile`] | snapshots | work factors, service and think times, populations, each with its uncertainty | Pacifici 4 |
//! | [`queueing`] | work factors and a share of CPU | response time and throughput | Carrera 5.3.1, Stewart & Shen 3 |
//! | [`utility`] | a goal and a model | a monotone curve utility(CPU) and its inverse | Carrera 5.3.1-5.3.2 |
//! | [`flow`] | profiles and the current placement | seats and weights of each flow (every flow cycle) | Pacifici 3 |
//! | [`admission`] | arrivals, ends, configs and the node agent's answers at one gateway | dispatches, rejections and calls that wake instances (every request) | Al-Qudah 3 |
//! | [`cycle`] | what engine, gateway and people say | everything that is to be done: the whole loop around the above and below | |
//! | [`dispatch`] | seats, weights and queues | which request goes next, to which instance (every request) | Pacifici 3.1, Tsai 3 |
//! | [`jobs`] | stages and goals of batch jobs | hypothetical utility, demand | Carrera 5.4.2 |
//! | [`shares`] | what the tasks of a parallel job use and lack | CPU that moves between them | Tsai 5.3 |
//! | [`notify`] | what a pool shows | who is told that something is wrong | - |
//! | [`placement`] | curves, memory and constraints | which instances run where (every placement cycle) | Carrera 5.3, Al-Qudah 3 |
//! | [`components`] | component models and servers | the placement of a multi-component service that carries most (offline) | Stewart & Shen 3, 5 |
//! | [`check`] | a plan | what is wrong with it; shares no code with the planners | - |
//!
//! Invariant: planners are functions of their arguments; equal arguments give equal plans. Budgets count iterations.

pub mod admission;
pub mod check;
pub mod clients;
pub mod components;
pub mod cycle;
pub mod dispatch;
pub mod flow;
pub mod jobs;
pub mod notify;
pub mod placement;
pub mod profile;
pub mod queueing;
pub mod seeded;
pub mod shares;
pub mod utility;
