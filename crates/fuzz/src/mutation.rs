//! How one input becomes another.

use rand::RngExt as _;
use weal_rng::Rng;

/// What many parsers trip over: ends of lines and numbers, quotes, brackets, the ends of ranges, and bytes that are no text.
const TOKENS: [&[u8]; 28] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"=",
    b"\"",
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b"/",
    b"%",
    b"..",
    b"-1",
    b"0",
    b"18446744073709551616",
    b"1e999",
    b"NaN",
    b"\xff",
    b"\xc3\x28",
    b"\xe2\x80\xae",
    b"999999999999999999999999",
];

/// An input is not made longer than this: what is slow with long inputs shows earlier.
const LONGEST: usize = 8192;

/// Some input of `corpus` with one to eight changes. The corpus has one at least.
pub fn mutate(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = pick(corpus, rng).clone();
    for _ in 0..rng.random_range(1..=8) {
        change(&mut input, corpus, rng);
        input.truncate(LONGEST);
    }
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.random_range(0..=input.len());
    match rng.random_range(0..9) {
        0 => flip(input, at, rng),
        1 => insert(input, at, &[rng.random()]),
        2 | 3 => insert(input, at, pick::<&[u8]>(&TOKENS, rng)),
        4 => drop(input.drain(at..end_from(input, at, rng))),
        5 => {
            let again = input[at..end_from(input, at, rng)].to_vec();
            insert(input, at, &again);
        }
        6 => input.truncate(at),
        7 => {
            let other = pick(corpus, rng);
            let from = rng.random_range(0..=other.len());
            insert(input, at, &other[from..end_from(other, from, rng)]);
        }
        _ => {
            let end = end_from(input, at, rng);
            input.splice(at..end, pick::<&[u8]>(&TOKENS, rng).iter().copied());
        }
    }
}

fn flip(input: &mut [u8], at: usize, rng: &mut Rng) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << rng.random_range(0..8);
    }
}

fn insert(input: &mut Vec<u8>, at: usize, more: &[u8]) {
    input.splice(at..at, more.iter().copied());
}

/// The end of a piece that begins at `at`; most are short.
fn end_from(input: &[u8], at: usize, rng: &mut Rng) -> usize {
    let longest = if rng.random_bool(0.1) { input.len() } else { 16 };
    (at + rng.random_range(0..=longest)).min(input.len())
}

fn pick<'a, T>(from: &'a [T], rng: &mut Rng) -> &'a T {
    &from[rng.random_range(0..from.len())]
}
