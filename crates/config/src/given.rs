//! The variables that weal gives to programs, which no config may set.

/// To each instance.
pub const GIVEN_TO_INSTANCES: [&str; 5] = ["PORT", "DATA", "INSTANCE", "NODE", "WEAL_KEEP_AWAKE"];
/// To each job.
pub const GIVEN_TO_JOBS: [&str; 11] = [
    "JOB",
    "ATTEMPT",
    "NODE",
    "DATA",
    "WEAL_PROGRESS",
    "WEAL_TASK",
    "WEAL_TASKS",
    "WEAL_TASK_NODES",
    "WEAL_TASK_ADDRESSES",
    "WEAL_HOSTFILE",
    "ARRAY_INDEX",
];
