use weal_model::HttpRules;
use weal_protocol::gateway::{FlowConfig, Standby};

use super::*;

/// One instance with one seat, and one that stands by for who has waited for so long.
fn config(after_s: f64) -> ClusterConfig {
    let open =
        Endpoint { instance: "shop-1".into(), address: ([127, 0, 0, 1], 1).into(), weight: 1.0, draining: false, listener: None };
    ClusterConfig {
        app: "shop".into(),
        routes: Vec::new(),
        seats: Some(1),
        flows: [("gold".into(), FlowConfig { weight: 1.0, seats: 1, queue_limit: 9, ..FlowConfig::default() })].into(),
        endpoints: vec![open],
        request_timeout_s: 600.0,
        standby: Some(Standby { after_s, instances: vec!["shop-2".into()] }),
        wakeable: None,
        http: HttpRules::default(),
        unavailable: None,
        inner: None,
        calls: false,
    }
}

#[test]
fn a_cluster_with_a_queue_asks_to_be_looked_at_once_and_again_when_a_config_brings_that_forward() {
    let (errands, mut received) = mpsc::unbounded_channel();
    let cluster = Cluster::new(&config(60.0), Clock::new(), 1, errands, None, None);
    let class = cluster.class(&"gold".into()).unwrap();
    let mut looks = || match received.try_recv() {
        Ok(Errand::Look { at, after, .. }) => Some((at, after)),
        Ok(Errand::Wake(..)) => panic!("nobody has waited for too long"),
        Err(_) => None,
    };
    let seats = [(); 3].map(|()| cluster.arrive(class).unwrap().0);
    let (first, after) = looks().expect("the second one waits");
    assert!(after > Duration::from_secs(100), "{after:?}");
    assert_eq!(looks(), None, "the third one waits behind it");
    cluster.configure(&config(30.0));
    let (earlier, after) = looks().unwrap();
    assert!(earlier < first && after > Duration::from_secs(50), "{after:?}");
    cluster.look(first);
    assert_eq!(looks(), None, "the earlier one is still to come");
    cluster.look(earlier);
    assert_eq!(looks().map(|(at, _)| at), Some(earlier), "it was too early");
    drop(seats);
}

#[test]
fn a_cluster_has_its_call_made_once_and_the_next_one_after_a_refusal() {
    let (errands, mut received) = mpsc::unbounded_channel();
    let asleep = ClusterConfig { endpoints: Vec::new(), ..config(60.0) };
    let cluster = Cluster::new(&asleep, Clock::new(), 1, errands, None, None);
    let class = cluster.class(&"gold".into()).unwrap();
    let seats = [(); 2].map(|()| cluster.arrive(class).unwrap().0);
    assert!(matches!(received.try_recv(), Ok(Errand::Wake(_, request)) if request.app.as_str() == "shop"));
    assert!(received.try_recv().is_err(), "for both");
    cluster.handle_wake_refused();
    assert!(matches!(received.try_recv(), Ok(Errand::Look { .. })), "after a pause");
    drop(seats);
}
