//! `weal` as its users meet it: real processes, real sockets, real faults.

mod acme;
mod adopt;
mod basics;
mod begin;
mod commands;
mod deploy;
mod disk;
mod dispatch;
mod environment;
mod faults;
mod goals;
mod grpc;
mod identity;
mod jobs;
mod load;
mod pool;
mod ports;
mod real;
mod rehearsals;
mod reload;
mod roles;
mod secrets;
mod site;
mod sleep;
mod verbs;
mod why;
