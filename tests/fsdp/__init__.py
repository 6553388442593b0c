"""Tests of fully sharded training."""
