#[derive(clap::Args)]
pub(crate) struct Args {}
pub(crate) fn main(_args: &Args) -> anyhow::Result<()> {
    Ok(())
}
