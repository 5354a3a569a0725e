"""Where the rows come from: a crawl, or Parquet files in folders, buckets and on the Hub."""
