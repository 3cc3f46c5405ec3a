//! Which inputs and outputs of a job are refused when it is submitted.

use std::path::Path;

use weal_model::JobFiles;
use weal_protocol::Refusal;
use weal_protocol::controller::JobSubmission;

/// Inputs, and patterns of outputs, of one job.
const MOST: usize = 100;
/// The longest path that Linux takes.
const LONGEST_PATH: usize = 4096;

/// What is wrong with the files of a submission.
pub(super) fn check(submission: &JobSubmission) -> Result<(), Refusal> {
    let paths = || submission.inputs.iter().chain(&submission.output_to);
    if let Some(path) = paths().find(|path| !Path::new(path).is_absolute()) {
        return Err(Refusal::RelativeFolder { folder: path.clone() });
    }
    if submission.inputs.len().max(submission.outputs.len()) > MOST {
        return Err(bad(format!("the job names {MOST} inputs and {MOST} outputs at most")));
    }
    if let Some(long) = paths().chain(&submission.outputs).find(|text| text.len() > LONGEST_PATH || text.contains('\0')) {
        let begin: String = long.escape_debug().take(80).collect();
        return Err(bad(format!("a path has {LONGEST_PATH} bytes at most and no NUL, unlike {begin}")));
    }
    if let Some(outside) = submission.outputs.iter().find(|pattern| !JobFiles::is_inside(pattern)) {
        return Err(bad(format!("`{outside}` does not lie in the job's own folder: outputs are relative to it, without `..`")));
    }
    if submission.outputs.is_empty() != submission.output_to.is_none() {
        return Err(bad("outputs need a folder to go to, and such a folder needs outputs".to_owned()));
    }
    Ok(())
}

fn bad(detail: String) -> Refusal {
    Refusal::BadJob { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_jobs_folder_and_half_a_wish_are_refused() {
        let said = |inputs: &[&str], outputs: &[&str], to: Option<&str>| {
            let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
            let submission = JobSubmission {
                inputs: texts(inputs),
                outputs: texts(outputs),
                output_to: to.map(str::to_owned),
                ..JobSubmission::default()
            };
            check(&submission).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(said(&["/srv/a"], &["out/*.png"], Some("/srv/out")), Ok(()));
        assert!(said(&["a"], &[], None).is_err());
        for (outputs, to, part) in [
            (["../x"], Some("/o"), "`../x` does not lie in the job's own folder"),
            (["/etc/x"], Some("/o"), "`/etc/x` does not lie"),
            ([""], Some("/o"), "`` does not lie"),
            (["x"], None, "outputs need a folder"),
        ] {
            let why = said(&[], &outputs, to).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert!(said(&[], &[], Some("/o")).unwrap_err().contains("such a folder needs outputs"));
        assert!(said(&["/x"; 101], &[], None).unwrap_err().contains("100 inputs"));
    }
}
