//! An independent judge of plans: capacity, memory, constraints, starvation, churn. It shares no code with the planners.
