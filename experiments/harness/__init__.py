"""What every study needs: options, storage, progress, claims, figures, the report and processes to run in."""
