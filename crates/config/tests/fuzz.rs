//! Bytes that were never meant for a reader of configs.

use weal_config::import::{compose, procfile};
use weal_config::{Level, MachineSize, effective, env_file, parse};
use weal_model::Bytes;

const MACHINE: MachineSize = MachineSize { cpus: 4.0, memory: Bytes::gib(8) };

#[test]
fn fuzz_configs() {
    weal_fuzz::target("config", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match parse(&text, "/srv/pool/weal.toml", &MACHINE) {
            Ok(parsed) => {
                let again = parse(&effective(&parsed.spec), "/srv/pool/weal.toml", &MACHINE);
                assert_eq!(again.map(|again| again.spec), Ok(parsed.spec));
            }
            Err(found) => assert!(found.iter().any(|found| found.level == Level::Error)),
        }
    });
}

#[test]
fn fuzz_files_of_variables() {
    weal_fuzz::target("env-file", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match env_file::parse(&text) {
            Ok(variables) => {
                assert!(variables.len() <= text.lines().count());
                for (name, value) in variables {
                    assert!(env_file::is_variable(&name) && !value.contains('\0'), "{name:?} {value:?}");
                }
            }
            Err(error) => assert!((1..=text.lines().count()).contains(&error.line), "{error}"),
        }
    });
}

#[test]
fn fuzz_imported_files() {
    let check = |text: &str| {
        if let Err(found) = parse(text, "/srv/pool/weal.toml", &MACHINE) {
            panic!("{text}\n{found:?}");
        }
    };
    weal_fuzz::target("procfile", |bytes| {
        if let Ok(imported) = procfile(&String::from_utf8_lossy(bytes)) {
            check(&imported.text);
        }
    });
    // What becomes of damaged quotes in a Compose file may still need a hand: it is read, or refused with a reason.
    weal_fuzz::target("compose", |bytes| match compose(&String::from_utf8_lossy(bytes), &Default::default()) {
        Ok(imported) => assert!(!imported.text.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    });
}
