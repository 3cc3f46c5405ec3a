//! Damaged configs: whatever is cut out, doubled or put in, the answer is a spec or findings at places that exist.

use proptest::prelude::*;
use weal_config::{Level, MachineSize, effective, parse};
use weal_model::Bytes;

const MACHINE: MachineSize = MachineSize { cpus: 4.0, memory: Bytes::gib(8) };
const EVERYTHING: &str = include_str!("good/everything.toml");
/// What slips into configs.
const SLIPS: [&str; 16] =
    ["\"", "'", "[", "]", "{", "}", "=", ",", "\n", "-1", "ü", "1e999", "\"$X ${\"", "true", "\u{0}", "99999999999999999999"];

proptest! {
    #[test]
    fn a_damaged_config_is_read_or_refused_with_places_that_exist(
        damages in prop::collection::vec((0.0..1.0_f64, 0_usize..40, prop::option::of(0..SLIPS.len())), 1..4),
    ) {
        let mut text = EVERYTHING.to_owned();
        for (at, length, slip) in damages {
            let boundary = |at: usize| (at..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
            let start = boundary((at * text.len() as f64) as usize);
            let end = boundary((start + length).min(text.len()));
            text.replace_range(start..end, slip.map_or("", |slip| SLIPS[slip]));
        }
        match parse(&text, "/srv/pool/weal.toml", &MACHINE) {
            Ok(parsed) => {
                let again = parse(&effective(&parsed.spec), "/srv/pool/weal.toml", &MACHINE);
                prop_assert_eq!(again.map(|again| again.spec), Ok(parsed.spec));
            }
            Err(found) => {
                prop_assert!(found.iter().any(|found| found.level == Level::Error));
                for found in found {
                    let line = text.split('\n').nth(found.line - 1).unwrap_or_default();
                    prop_assert!(found.column + found.length <= line.chars().count() + 1, "{found}");
                    prop_assert!(found.render(&text, true).contains(&found.message));
                }
            }
        }
    }
}
