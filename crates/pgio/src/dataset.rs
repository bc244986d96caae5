#[derive(Debug, Clone)] pub struct Mark { pub version: u32, pub scale: String, pub blocks: u64, pub tables: u32, pub seed: u64 }
pub fn size(_c: &mut postgres::Client) -> Result<u64, postgres::Error> { Ok(0) }
