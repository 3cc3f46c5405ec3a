//! Sessions that walk from page to page by a transition matrix.

use rand::RngExt;
use serde::{Deserialize, Serialize};

use weal_rng::{self as random, Rng};

/// A page of a session's walk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Its name.
    pub name: String,
    /// What is asked for with real processes.
    pub path: String,
    /// The class of its requests.
    pub class: String,
    /// CPU time relative to the application's.
    pub work_factor: f64,
    /// Relative weights of the page that comes next, one per page. What is missing to 1 in the file ends the walk, and the session begins
    /// again at the first page. Invariant: as many as there are pages, and one more for the end; not all zero.
    pub next: Vec<f64>,
}

/// The pages of one session, by their indices; never ends.
#[derive(Debug, Clone)]
pub struct Walk {
    rng: Rng,
    at: Option<usize>,
}

impl Walk {
    /// The walk of session number `session` of the load `name`.
    pub fn new(seed: u64, name: &str, session: u32) -> Self {
        Self { rng: random::stream(seed, &format!("{name}/{session}/walk")), at: None }
    }

    /// The next page; 0 for a load without pages.
    pub fn step(&mut self, pages: &[Page]) -> usize {
        if pages.is_empty() {
            return 0;
        }
        let next = match self.at {
            None => 0,
            Some(at) => Some(self.draw(&pages[at].next)).filter(|&next| next < pages.len()).unwrap_or(0),
        };
        self.at = Some(next);
        next
    }

    fn draw(&mut self, weights: &[f64]) -> usize {
        let mut left = self.rng.random::<f64>() * weights.iter().sum::<f64>();
        let passes = |weight: &f64| {
            left -= weight;
            left < 0.0
        };
        weights.iter().position(passes).unwrap_or(weights.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_visits_pages_as_its_matrix_says() {
        let page = |name: &str, next: [f64; 3]| Page {
            name: name.into(),
            path: "/".into(),
            class: "gold".into(),
            work_factor: 1.0,
            next: next.to_vec(),
        };
        // From home always to buy; from buy again to buy half the time, else the session begins anew.
        let pages = [page("home", [0.0, 1.0, 0.0]), page("buy", [0.0, 0.5, 0.5])];
        let mut walk = Walk::new(3, "web", 0);
        let visits: Vec<usize> = (0..30_000).map(|_| walk.step(&pages)).collect();
        assert_eq!(visits[..2], [0, 1]);
        let homes = visits.iter().filter(|&&page| page == 0).count() as f64 / 30_000.0;
        // Balance: home = buy / 2.
        assert!((homes - 1.0 / 3.0).abs() < 0.01, "{homes}");
        assert!(visits.windows(2).all(|pair| pair != [0, 0]), "home never follows home");
    }
}
