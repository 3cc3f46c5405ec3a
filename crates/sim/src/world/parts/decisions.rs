//! What the loop of a simulated pool was told and what it decided, step by step, so that another controller can be held against it.

use weal_control::cycle::{Cycle, Effect, Input, Order, Start};
use weal_model::Time;
use weal_protocol::Refusal;
use weal_protocol::controller::{AppOrdered, SleepTaken, WakeTaken};

/// A run of the loop, from its beginning.
#[derive(Debug)]
pub struct Decisions {
    /// What the loop began with, at [`Time::ZERO`].
    pub start: Start,
    /// What it asked for before anything happened.
    pub begins: Vec<Effect>,
    /// What happened, in order.
    pub steps: Vec<DecisionStep>,
}

/// One thing that happened, and what followed.
#[derive(Debug, Clone)]
pub struct DecisionStep {
    /// When.
    pub at: Time,
    /// What happened.
    pub input: Input,
    /// What whoever gave an order was answered.
    pub answer: Option<OrderAnswer>,
    /// What the loop asked for then, in order.
    pub effects: Vec<Effect>,
}

/// What an order is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderAnswer {
    /// To sleep.
    Sleep(Result<SleepTaken, Refusal>),
    /// To wake.
    Wake(Result<WakeTaken, Refusal>),
    /// To restart, stop, start or scale.
    App(Result<AppOrdered, Refusal>),
}

/// Hands `input` to the loop; the answer is that to an order.
pub fn hand(cycle: &mut Cycle, now: Time, input: Input) -> Option<OrderAnswer> {
    match input {
        Input::Order(Order::Sleep { app, rung }) => Some(OrderAnswer::Sleep(cycle.handle_sleep(now, &app, rung))),
        Input::Order(Order::Wake { app }) => Some(OrderAnswer::Wake(cycle.handle_wake(now, &app))),
        Input::Order(Order::App { app, verb }) => Some(OrderAnswer::App(cycle.handle_verb(now, &app, verb))),
        input => {
            cycle.handle(now, input);
            None
        }
    }
}
