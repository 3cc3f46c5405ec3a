//! `api-tls` of `[pool]`.

use std::path::Path;

use weal_model::ApiTls;

use super::paths::read_file;
use crate::section::{Reading, Section};

/// Both files of the certificate are needed; callers show certificates of their own only where `client-ca` says so.
pub(super) fn read(reading: &mut Reading, pool: &Section, folder: &Path) -> Option<ApiTls> {
    let table = pool.table(reading, "api-tls")?;
    let section = Section::open(reading, &pool.at("api-tls"), table, &["certificate", "key", "client-ca"]);
    let [certificate, key, client_ca] = ["certificate", "key", "client-ca"].map(|key| read_file(reading, &section, folder, key));
    for name in ["certificate", "key"].into_iter().filter(|name| section.item(name).is_none()) {
        let help = format!("add `{name} = \"FILE\"`, a file in PEM");
        reading.findings.error(reading.places.key(&pool.at("api-tls")), format!("`api-tls` has no `{name}`"), help);
    }
    Some(ApiTls { certificate: certificate?, key: key?, client_ca })
}
