//! Commands: a program and its arguments.

use std::ops::Range;

use crate::section::Reading;

/// A command needs a program, and no argument can hold a zero byte.
pub(super) fn check_argv(reading: &mut Reading, argv: &[String], place: Range<usize>) {
    if argv.first().is_none_or(|program| program.trim().is_empty()) {
        reading.findings.error(place, "this names no program", "write the program first: `[\"./program\", \"argument\"]`");
    } else if argv.iter().any(|argument| argument.contains('\0')) {
        reading.findings.error(place, "an argument holds a zero byte", "no program can be given one");
    }
}
