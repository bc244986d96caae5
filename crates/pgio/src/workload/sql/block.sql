DO $pgio$
{block};
$pgio$
