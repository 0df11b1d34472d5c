//! Corpora that are committed: text files with the fewest inputs that reach the code which a run has reached.

use std::path::Path;
use std::process::Stdio;

/// Limits of a committed corpus. Inputs above them stay in `fuzz/corpus`.
const INPUT_BYTES_MAX: u64 = 2048;
const CORPUS_BYTES_MAX: usize = 10 * 1024;

/// Writes the committed inputs of a target into the folder that libFuzzer reads and extends.
pub fn unpack_corpus(fuzz: &Path, name: &str, corpus: &Path) -> Result<(), String> {
    let path = fuzz.join("corpora").join(format!("{name}.txt"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        // A new target has no corpus yet.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    for (at, input) in corpora::parse_inputs(&text).map_err(|e| format!("{}: {e}", path.display()))?.iter().enumerate()
    {
        let file = corpus.join(format!("kept-{at}"));
        std::fs::write(&file, input).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}

/// Replaces the committed corpus of a target: libFuzzer picks a set of inputs that covers all reached edges, of which
/// those that reach the most code are kept.
pub fn replace_corpus(fuzz: &Path, binary: &Path, name: &str) -> Result<(), String> {
    let fewest = fuzz.join("artifacts").join(name).join("fewest");
    let _ = std::fs::remove_dir_all(&fewest);
    std::fs::create_dir_all(&fewest).map_err(|e| format!("{}: {e}", fewest.display()))?;
    let mut command = super::target_command(binary);
    command.arg("-set_cover_merge=1").arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(&fewest).arg(fuzz.join("corpus").join(name)).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    if !status.success() {
        return Err(format!("{name}: libFuzzer could not reduce the corpus"));
    }
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(&fewest).map_err(|e| format!("{}: {e}", fewest.display()))?.flatten() {
        let read = || Ok::<_, std::io::Error>((entry.metadata()?.modified()?, std::fs::read(entry.path())?));
        inputs.push(read().map_err(|e| format!("{}: {e}", entry.path().display()))?);
    }
    // libFuzzer writes those that reach the most code first.
    inputs.sort_by_key(|(written, input)| (*written, input.len()));
    let inputs = within_limit(inputs.into_iter().map(|(_, input)| input).collect());
    let folder = fuzz.join("corpora");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let path = folder.join(format!("{name}.txt"));
    std::fs::write(&path, corpora::print_inputs(&inputs)).map_err(|e| format!("{}: {e}", path.display()))?;
    std::fs::remove_dir_all(&fewest).map_err(|e| format!("{}: {e}", fewest.display()))
}

/// Drops the inputs that would exceed the limit of a corpus.
fn within_limit(mut inputs: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut bytes = 0;
    inputs.retain(|input| {
        let fits = bytes + input.len() <= CORPUS_BYTES_MAX;
        bytes += if fits { input.len() } else { 0 };
        fits
    });
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_inputs_are_kept_up_to_the_limit() {
        let half = CORPUS_BYTES_MAX / 2;
        let kept = within_limit(vec![vec![0; half + 1], vec![2; half], vec![1; 3]]);
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [half + 1, 3]);
    }
}
