//! How names are made from names: ids of instances, and the variables in which an instance finds what it needs. Nothing else makes or
//! takes apart such names.

use crate::{AppName, InstanceId};

/// The id of an application's instance: `APP-NUMBER`.
pub fn instance_id(app: &AppName, number: u64) -> InstanceId {
    InstanceId::from(format!("{app}-{number}"))
}

/// The application and the number in `APP-NUMBER`; `None` for any other id. An id that another engine made need not have this form: what
/// an instance belongs to stands beside its id, and this only keeps numbers from being used twice.
pub fn parts(instance: &InstanceId) -> Option<(AppName, u64)> {
    let (app, number) = instance.as_str().rsplit_once('-')?;
    Some((AppName::from(app), number.parse().ok()?))
}

/// The variable in which an instance finds a part of where `needed` listens: `my-db` and `ADDR` make `MY_DB_ADDR`.
pub fn variable(needed: &AppName, part: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let prefix: String = needed.as_str().chars().map(upper).collect();
    format!("{prefix}_{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_parts_that_it_was_made_from() {
        let id = instance_id(&"my-shop".into(), 12);
        assert_eq!(id.as_str(), "my-shop-12");
        assert_eq!(parts(&id), Some(("my-shop".into(), 12)));
        assert_eq!((parts(&"shop".into()), parts(&"shop-x".into())), (None, None));
    }

    #[test]
    fn a_variable_has_only_capitals_digits_and_underscores() {
        assert_eq!(variable(&"my-db.2".into(), "ADDR"), "MY_DB_2_ADDR");
    }
}
