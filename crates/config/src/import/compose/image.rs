//! The image of a service, where an archive of it lies beside the compose file.

use std::collections::BTreeSet;

/// What the name of such an archive ends with.
const ENDS: [&str; 3] = [".oci.tar", ".tar", ".docker.tar"];

/// The one of `archives` that is called as `image`: `shop-1.2.tar` or `shop.tar` for `host/team/shop:1.2`.
pub(super) fn archive_of(image: &str, archives: &BTreeSet<String>) -> Option<String> {
    let named = image.split('@').next()?.rsplit('/').next()?;
    let (name, tag) = named.split_once(':').unwrap_or((named, ""));
    let with_tag = ["-", "_"].into_iter().filter(|_| !tag.is_empty()).map(|dash| format!("{name}{dash}{tag}"));
    let mut candidates = with_tag.chain([name.to_owned()]).flat_map(|stem| ENDS.map(|end| format!("{stem}{end}")));
    candidates.find(|candidate| archives.contains(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_found_by_the_images_name_and_better_by_its_tag() {
        let of = |image: &str, archives: &[&str]| archive_of(image, &archives.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(of("host:5000/team/shop:1.2@sha256:0", &["shop.tar", "shop-1.2.tar"]).as_deref(), Some("shop-1.2.tar"));
        assert_eq!(of("shop", &["other.tar", "shop.oci.tar"]).as_deref(), Some("shop.oci.tar"));
        assert_eq!(of("shop:2", &["shop-1.tar", "shop", "workshop.tar"]), None);
    }
}
