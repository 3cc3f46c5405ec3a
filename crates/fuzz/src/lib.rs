//! Feeds parsers with bytes that were never meant for them.
//!
//! A target is a test beside its parser, which is why private parsers can have one. It calls [`target`] with a name and with what is done to
//! each input: parse it, and assert what has to hold of every result. The inputs of `corpus/NAME/` come first, as they are. Then
//! [`executions`] mutations of them follow, each drawn from a stream of its own, so that one that fails can be repeated by its number.
//!
//! There is no feedback from coverage: that needs a nightly compiler. The corpus makes up for some of it, so it has one small input for each
//! branch that matters, and each input that failed once.

mod mutation;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How many mutations each target runs in `make test`, where this is not set: some seconds for all of them in a debug build.
pub const EXECUTIONS: &str = "WEAL_FUZZ_EXECUTIONS";
/// The number of the first mutation where it is not 0: where a former run with the same seed has ended.
pub const FIRST: &str = "WEAL_FUZZ_FIRST";
/// Runs the named target only, if it is set.
pub const ONLY: &str = "WEAL_FUZZ_TARGET";
/// Another seed than 1.
pub const SEED: &str = "WEAL_FUZZ_SEED";

/// Mutations where nothing else is asked for.
const FEW: u64 = 2000;

/// Runs `run` with the corpus of `name` and with mutations of it. A panic of `run` fails the test, and says which input it was.
///
/// # Panics
/// When `run` does, or when the corpus is empty.
pub fn target(name: &str, run: impl Fn(&[u8])) {
    if std::env::var(ONLY).is_ok_and(|only| only != name) {
        return;
    }
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "no corpus in {}", folder(name).display());
    let seed = number(SEED).unwrap_or(1);
    for (index, input) in corpus.iter().enumerate() {
        try_input(&run, input, &format!("{name}: input {index} of its corpus"));
    }
    let (first, begun) = (number(FIRST).unwrap_or(0), Instant::now());
    for execution in first..first.saturating_add(executions()) {
        let mut rng = weal_rng::stream(seed, &format!("{name}/{execution}"));
        let input = mutation::mutate(&corpus, &mut rng);
        try_input(&run, &input, &format!("{name}: execution {execution} with {SEED}={seed}"));
    }
    if number(EXECUTIONS).is_some() {
        // Whoever plans a long run wants to know.
        let passed_s = begun.elapsed().as_secs_f64();
        eprintln!("{name}: {} executions in {passed_s:.1} s, {:.0} a second", executions(), executions() as f64 / passed_s);
    }
}

/// What is understood of `bytes` as a `T` can be said again as JSON, and is understood as the same again.
///
/// # Panics
/// When it is not.
pub fn check_json<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<T>(bytes) else { return };
    let said = serde_json::to_vec(&body).expect("what was read can be written");
    let again = serde_json::from_slice::<T>(&said);
    assert!(again.as_ref().is_ok_and(|again| *again == body), "{again:?}: {}", String::from_utf8_lossy(&said));
}

/// How many mutations a target runs.
pub fn executions() -> u64 {
    number(EXECUTIONS).unwrap_or(FEW)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// In the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder(name)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// Says which input it is if it panics.
fn try_input(run: &impl Fn(&[u8]), input: &[u8], what: &str) {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(input)));
    if let Err(panic) = outcome {
        eprintln!("{what} fails. Add it to the corpus: printf '{}' > FILE", printed(input));
        std::panic::resume_unwind(panic);
    }
}

/// For `printf` of a shell.
fn printed(input: &[u8]) -> String {
    let byte = |byte: &u8| match *byte {
        byte @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'.' | b',' | b':' | b'/' | b'=' | b'_' | b'-') => {
            char::from(byte).to_string()
        }
        byte => format!("\\{byte:03o}"),
    };
    input.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_target_sees_its_corpus_and_many_other_inputs_and_fails_by_one_of_them() {
        let (seen, others) = (Cell::new(0_u64), Cell::new(0_u64));
        target("self", |input| {
            seen.set(seen.get() + 1);
            others.set(others.get() + u64::from(!input.starts_with(b"key = ")));
        });
        assert!(seen.get() > executions() && others.get() > executions() / 10, "{} of {}", others.get(), seen.get());
        let failed = std::panic::catch_unwind(|| target("self", |input| assert!(input.len() < 24, "too long")));
        assert!(failed.is_err(), "some input is that long");
    }

    #[test]
    fn an_input_is_printed_so_that_a_shell_can_make_it_again() {
        assert_eq!(printed(b"a'\n\xff"), "a\\047\\012\\377");
    }
}
