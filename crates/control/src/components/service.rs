//! Profiles, servers, and what a placement carries.

use crate::queueing::mg1_response;

/// A component's profile. Units are free as long as servers are in the same: a speed of 1 is the server of the profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// CPU time per request: `a_c`.
    pub per_request: f64,
    /// CPU that a replica always uses: `b_c`.
    pub standing: f64,
    /// False for what keeps state that it cannot share: it has one replica.
    pub replicable: bool,
}

/// Calls of one component to another, per request of the service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// Who calls.
    pub from: usize,
    /// Who is called.
    pub to: usize,
    /// CPU time that a remote call costs the caller on top: `h_cd`.
    pub overhead: f64,
    /// Seconds that it waits for the network: round trips times latency plus volume over bandwidth (3.2).
    pub delay_s: f64,
}

/// A server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server {
    /// Its CPU: `w_s`.
    pub speed: f64,
}

/// A service and the servers that it may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its components.
    pub components: Vec<Component>,
    /// Who calls whom; empty is the base model.
    pub calls: Vec<Call>,
    /// The servers.
    pub servers: Vec<Server>,
}

/// For each server, which components have a replica there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement(pub Vec<Vec<bool>>);

impl Placement {
    /// How many replicas a component has.
    pub fn replicas(&self, component: usize) -> usize {
        self.0.iter().filter(|here| here[component]).count()
    }
}

impl Service {
    /// True when every component has a replica, and no more than one where it may not have more.
    pub fn accepts(&self, placement: &Placement) -> bool {
        (0..self.components.len()).all(|c| match placement.replicas(c) {
            0 => false,
            1 => true,
            _ => self.components[c].replicable,
        })
    }

    /// The CPU time per request on each server, and the CPU that is gone before the first one.
    fn loads(&self, placement: &Placement) -> Vec<(f64, f64)> {
        let replicas: Vec<f64> = (0..self.components.len()).map(|c| placement.replicas(c) as f64).collect();
        let load = |here: &Vec<bool>| {
            let mut load = (0.0, 0.0);
            for (c, component) in self.components.iter().enumerate().filter(|(c, _)| here[*c]) {
                let remote = self.calls.iter().filter(|call| call.from == c && !here[call.to]).map(|call| call.overhead);
                load.0 += (component.per_request + remote.sum::<f64>()) / replicas[c];
                load.1 += component.standing;
            }
            load
        };
        placement.0.iter().map(load).collect()
    }

    /// Requests per second at which each server is full; infinite for one without work, 0 for one that is full at rest.
    pub fn saturations(&self, placement: &Placement) -> Vec<f64> {
        let full = |((per_request, standing), server): (&(f64, f64), &Server)| {
            let left = (server.speed - standing).max(0.0);
            if *per_request > 0.0 { left / per_request } else { f64::INFINITY }
        };
        self.loads(placement).iter().zip(&self.servers).map(full).collect()
    }

    /// Requests per second at which the first server is full (3.1).
    pub fn saturation(&self, placement: &Placement) -> f64 {
        self.saturations(placement).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// Mean response time in seconds at `rate` requests per second (3.2), for execution times with this coefficient of
    /// variation; infinite from the saturation on.
    pub fn response_s(&self, placement: &Placement, rate: f64, variation: f64) -> f64 {
        let each = self.loads(placement).into_iter().zip(&self.servers).map(|((per_request, standing), server)| {
            // A request of the service visits a server with a share of its components; what it executes there is the mean.
            let left = server.speed - standing;
            if per_request <= 0.0 { 0.0 } else { mg1_response(per_request / server.speed, rate * per_request / left, variation) }
        });
        each.sum::<f64>() + self.network_s(placement)
    }

    fn network_s(&self, placement: &Placement) -> f64 {
        let remote = |call: &Call| {
            let callers = placement.0.iter().filter(|here| here[call.from]);
            let away = callers.filter(|here| !here[call.to]).count() as f64;
            call.delay_s * away / placement.replicas(call.from).max(1) as f64
        };
        self.calls.iter().map(remote).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn two_components() -> Service {
        let component =
            |name: &str, per_request, replicable| Component { name: name.to_owned(), per_request, standing: 0.1, replicable };
        Service {
            components: vec![component("web", 0.02, true), component("db", 0.01, false)],
            calls: vec![Call { from: 0, to: 1, overhead: 0.005, delay_s: 0.001 }],
            servers: vec![Server { speed: 1.0 }; 3],
        }
    }

    #[test]
    fn a_server_is_full_when_its_share_of_the_requests_uses_what_is_left() {
        let service = two_components();
        let placement = Placement(vec![vec![true, false], vec![true, false], vec![false, true]]);
        let saturations = service.saturations(&placement);
        assert!((saturations[0] - 0.9 / 0.0125).abs() < 1e-9 && (saturations[2] - 90.0).abs() < 1e-9, "{saturations:?}");
        assert!((service.saturation(&placement) - 72.0).abs() < 1e-9);
        let together = Placement(vec![vec![true, true], vec![true, false], vec![false, false]]);
        assert!((service.saturation(&together) - 0.8 / 0.02).abs() < 1e-9, "no remote call where both stand");
        assert!(service.accepts(&together));
        assert!(!service.accepts(&Placement(vec![vec![true, true], vec![true, true], vec![false, false]])));
        assert!(!service.accepts(&Placement(vec![vec![true, false]; 3])));
    }

    #[test]
    fn response_grows_from_the_work_of_a_request_to_infinity() {
        let service = two_components();
        let placement = Placement(vec![vec![true, false], vec![true, false], vec![false, true]]);
        let idle = service.response_s(&placement, 0.0, 1.0);
        assert!((idle - (0.0125 * 2.0 + 0.01 + 0.001)).abs() < 1e-9, "{idle}");
        assert!(service.response_s(&placement, 60.0, 1.0) > 2.0 * idle);
        assert_eq!(service.response_s(&placement, 72.1, 1.0), f64::INFINITY);
    }
}
