//! `cargo xtask bench instructions`: how many instructions the gateway takes for a request, beside what its page says of it.
//!
//! Time on a busy machine says little about a change of some hundred instructions. Callgrind counts them, whatever else the machine does.

pub mod counting;
pub mod version;

use std::path::Path;

use anyhow::Result;

use self::counting::{Request, instructions};
use self::version::Version;
use super::Arguments;
use super::real::median;
use crate::programs::fully_optimized;
use crate::report;
use crate::table::Table;

/// How many times as much as the page says is a loss.
const LIMIT: f64 = 1.03;

/// Where the count stands that others are compared with.
const PAGE: &str = "docs/benchmarks/instructions.md";

/// What a browser sends beside the host: some 500 bytes.
const BROWSER: &str = "connection: keep-alive\r\ncache-control: max-age=0\r\nupgrade-insecure-requests: 1\r\nuser-agent: Mozilla/5.0 (X11; Linux \
                       x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36\r\naccept: text/html,application/xhtml+xml,\
                       application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nsec-fetch-site: none\r\nsec-fetch-mode: navigate\r\naccept-encoding: \
                       gzip, deflate, br, zstd\r\naccept-language: en-US,en;q=0.9\r\ncookie: session=0123456789abcdef0123456789abcdef\r\n";

const REQUESTS: [(&str, Request); 4] = [
    ("GET with a Host and nothing else, 64 bytes", Request::SMALL),
    ("GET of a browser, 64 bytes", Request { fields: BROWSER, ..Request::SMALL }),
    ("GET with a Host and nothing else, 64 KiB", Request { bytes: 64 << 10, ..Request::SMALL }),
    ("GET over a connection of its own, 64 bytes", Request::ALONE),
];

/// Runs the benchmark.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let (_, stands) = report::halves(&crate::programs::root().join(PAGE))?;
    let examples = fully_optimized(&["--package", "weal-gateway", "--example", "gateway-bench"])?.join("examples");
    let scratch = std::env::temp_dir().join(format!("weal-bench-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let result = measure(arguments.quick, &examples, &scratch, &stands);
    std::fs::remove_dir_all(&scratch)?;
    result
}

fn measure(quick: bool, examples: &Path, scratch: &Path, stands: &str) -> Result<Table> {
    let version = Version { examples: examples.to_owned(), scratch: scratch.to_owned() };
    let mut table =
        Table::new("instructions of the gateway for each request over HTTP/1.1", &["request", "instructions", "of the page's"]);
    for (name, request) in &REQUESTS {
        let rounds = if quick { 1 } else { 3 };
        let counts = (0..rounds).map(|_| instructions(&version, request, quick)).collect::<Result<Vec<_>>>()?;
        let count = median(&counts);
        let ratio = standing(stands, name).map(|before| count / before);
        let ratio_cell = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        table.row([(*name).to_owned(), format!("{count:.0}"), ratio_cell], ratio.map(|ratio| ratio <= LIMIT));
    }
    table.notes.push(format!(
        "One request after the other, all but those of the last row on one connection, in user space only: what 2000 requests more cost. Median of 3. Target: \
         {LIMIT} times what this page said before, at most."
    ));
    Ok(table)
}

/// What the page says of a request.
fn standing(page: &str, name: &str) -> Option<f64> {
    let row = page.lines().find_map(|line| line.strip_prefix("| ")?.strip_prefix(name))?;
    row.split('|').nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_that_stands_is_read_from_the_page() {
        let mut table = Table::new("instructions", &["request", "instructions", "of the page's"]);
        table.row(["one".to_owned(), "20000".to_owned(), "1.000".to_owned()], Some(true));
        assert_eq!(standing(&table.to_markdown(), "one"), Some(20_000.0));
        assert_eq!(standing(&table.to_markdown(), "another"), None);
    }
}
