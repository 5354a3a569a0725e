"""What tests share: real Redis, real processes, real small models. No assertion lives here."""
