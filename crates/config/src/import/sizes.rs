//! Sizes as systemd and PM2 write them: in powers of 1024, with one letter for the unit.

use weal_model::Bytes;

/// `512M`, `1.5G`, `65536`, in large or small letters. `None` when it is no such size, or none at all.
pub(super) fn size(text: &str) -> Option<Bytes> {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let unit = match text[at..].to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = (text[..at].parse::<f64>().ok()? * unit).round();
    // Exact in this range, and far above any machine.
    (1.0..=2f64.powi(52)).contains(&bytes).then_some(Bytes(bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_in_powers_of_1024_and_anything_else_is_none() {
        assert_eq!(size("512M"), Some(Bytes(512 << 20)));
        assert_eq!(size("1.5g"), Some(Bytes(3 << 29)));
        assert_eq!(size("65536"), Some(Bytes(65536)));
        for none in ["infinity", "25%", "300MB", "", "0", "-1M", "1e999G", "nan"] {
            assert_eq!(size(none), None, "{none}");
        }
    }
}
