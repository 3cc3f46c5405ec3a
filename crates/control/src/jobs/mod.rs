//! Batch jobs: stages, hypothetical utility, and the baselines to compare with.
