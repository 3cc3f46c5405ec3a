//! A1: a flash crowd with three ways to bring an instance up (Al-Qudah et al. 2009, section 5, Figure 11).

use crate::fluid::crowd::{Crowd, ResponseCurve, play};
use crate::{Figure, Record, Reproduction, Setting, near};

/// Name, seconds to bring an instance up, worst response and seconds of bad service in Figure 11.
const WAYS: [(&str, f64, f64, f64); 3] =
    [("start", 90.0, 40.0, 100.0), ("resume", 90.0 / 5.3, 12.0, 25.0), ("prefetch and resume", 90.0 / 22.0, 5.0, 11.0)];
/// Seconds of a run, and what counts as bad: the response time before the crowd is below 0.2 s.
const RUN_S: f64 = 400.0;
const GOAL_S: f64 = 0.2;

pub(super) fn flash_crowd(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "A1",
        "Al-Qudah et al. 5, Figure 11 (fluid, enactment simulated)",
        "starting an instance leaves a flash crowd without it for about 100 s, resuming for 25 s, prefetching and resuming for 11 s; answers take up to 40, 12 and 5 s",
        "the crowd comes at 50 s; CPU is looked at every second, 80% is too much; a start takes 90 s, a resume a 5.3th, with prefetching a 22nd; the switch takes 7 s",
    );
    record.assume(
        "the crowd is 1.42 times what one instance can do: the growth of Figure 11a, 40 s in 98 s; the paper gives no rates",
    );
    record.assume("bad service ends when the second instance serves; what waits then is shared by both");
    record.chose_late("the size of the crowd, from the growth in Figure 11a; the longest responses are not independent of it");
    let crowd = |enactment_s: f64, router_s: f64| Crowd {
        load: [0.5, 1.42],
        at_s: 50.0,
        service_s: 0.1,
        threshold: 0.8,
        look_s: 1.0,
        enactment_s,
        router_s,
    };
    let courses = WAYS.map(|(_, enactment_s, ..)| play(&crowd(enactment_s, 7.0), RUN_S));
    for ((name, _, worst_s, until_s), course) in WAYS.iter().zip(&courses) {
        let row = record.number(&format!("{name}: seconds until another instance serves"), course.serves_s - 50.0);
        row.paper(near(*until_s, 0.15 * until_s));
        if *name == "start" {
            // The crowd's size is taken from this one.
            record.number("start: longest response, s", course.worst_s());
        } else {
            record.number(&format!("{name}: longest response, s"), course.worst_s()).paper(near(*worst_s, 0.15 * worst_s));
        }
        record.number(&format!("{name}: seconds until nobody waits longer than 0.2 s"), course.missed_s(GOAL_S));
    }
    let row = record.number("bad service: start over prefetch and resume", ratio(&courses, 0, 2));
    row.recalculated(near(100.0 / 11.0, 1.5));
    let row = record.number("bad service: resume over prefetch and resume", ratio(&courses, 1, 2));
    row.paper(near(2.0, 0.5)).recalculated(near(25.0 / 11.0, 0.35));
    let own = play(&crowd(WAYS[2].1, 0.0), RUN_S);
    record.number("prefetch and resume, a router that knows at once: seconds until another instance serves", own.serves_s - 50.0);
    record.number("the same: longest response, s", own.worst_s());
    let names: Vec<&str> = WAYS.iter().map(|way| way.0).chain(["prefetch and resume, quick router"]).collect();
    let mut figure = Figure::new("figure-11", "response time of what arrives", ["time, s", "s"], &names);
    for i in (0..courses[0].points.len()).step_by(40) {
        let of = |course: &ResponseCurve| course.points[i].1;
        figure.row(courses[0].points[i].0, &[of(&courses[0]), of(&courses[1]), of(&courses[2]), of(&own)]);
    }
    record.figure(figure);
    record.done()
}

fn ratio(courses: &[ResponseCurve; 3], a: usize, b: usize) -> f64 {
    (courses[a].serves_s - 50.0) / (courses[b].serves_s - 50.0)
}
