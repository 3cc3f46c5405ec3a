//! Where applications are reached, as URLs that a terminal lets people click on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weal_model::{AppSpec, PoolSpec, RouteSpec};

use crate::output::{Stream, Tone, paint};

/// One line for each application that is reached over HTTP: its name and its first URLs.
pub fn of_apps(spec: &PoolSpec) -> Vec<String> {
    let lines = spec.apps.values().filter_map(|app| {
        let urls: Vec<String> = of_app(spec, app).iter().map(|url| paint(url, Tone::Strong, Stream::Out)).collect();
        (!urls.is_empty()).then(|| format!("  {:<13} {}", app.name.as_str(), urls.join("  ")))
    });
    lines.collect()
}

/// The URL of each route of `app`, those over https last, each once. A route for a wildcard names no host to go to.
pub fn of_app(spec: &PoolSpec, app: &AppSpec) -> Vec<String> {
    let plain = app.routes.iter().filter_map(|route| url("http", spec.listen, route));
    let secure = spec.tls.iter().flat_map(|tls| app.routes.iter().filter_map(|route| url("https", tls.listen, route)));
    let mut urls: Vec<String> = Vec::new();
    for url in plain.chain(secure) {
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    urls
}

fn url(scheme: &str, listen: SocketAddr, route: &RouteSpec) -> Option<String> {
    if route.port.is_some() || route.host.as_ref().is_some_and(|host| host.contains('*')) {
        return None;
    }
    let host = route.host.clone().unwrap_or_else(|| reachable(listen.ip()));
    let port = match (scheme, listen.port()) {
        ("http", 80) | ("https", 443) => String::new(),
        (_, port) => format!(":{port}"),
    };
    let path = route.path.as_deref().unwrap_or("/").trim_end_matches('*');
    Some(format!("{scheme}://{host}{port}{path}"))
}

/// `localhost` where this machine itself is one of those that can connect.
fn reachable(address: IpAddr) -> String {
    match address {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => "localhost".to_owned(),
        address if address.is_unspecified() => "localhost".to_owned(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use weal_config::MachineSize;
    use weal_model::Bytes;

    use super::*;

    #[test]
    fn every_application_has_the_urls_of_its_routes() {
        let text = "[pool]\nlisten = \"127.0.0.1:80\"\n[app.shop]\nrun = [\"x\"]\n\
                    routes = [{ host = \"shop.localhost\" }, { host = \"*.shop.example\" }, { path = \"/api/*\" }, { tcp = 5432 }]\n\
                    [app.worker]\nrun = [\"x\"]\n";
        let spec = weal_config::parse(text, "/srv/weal.toml", &MachineSize { cpus: 2.0, memory: Bytes::gib(8) }).unwrap().spec;
        let urls = of_app(&spec, &spec.apps["shop"]);
        assert_eq!(urls, ["http://shop.localhost/", "http://localhost/api/"]);
        assert_eq!(of_apps(&spec), ["  shop          http://shop.localhost/  http://localhost/api/"]);
        let elsewhere = PoolSpec { listen: "0.0.0.0:8080".parse().unwrap(), ..spec };
        assert_eq!(of_app(&elsewhere, &elsewhere.apps["shop"]), ["http://shop.localhost:8080/", "http://localhost:8080/api/"]);
    }
}
