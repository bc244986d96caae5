//! Reading a text file that a person names: at most as much as such a file may have.
//!
//! Follows links, since the name is the user's choice; what pgio itself wrote is read by `Directory`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The whole text; an error where there is more than `most` bytes, of which no more are read.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_a_file_may_have() {
        let error = read_text(Path::new("/dev/zero"), 1000).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 1000 bytes");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "four").unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "four");
        assert!(read_text(&file, 3).is_err());
    }
}
